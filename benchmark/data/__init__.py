"""From stored pixels to a batch on the device: augmentation, colour, resampling, and the loader that does them."""
