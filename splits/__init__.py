"""Arrays and class names in, ladders of train/test splits out. Reads no image, knows no network."""


class SplitError(ValueError):
    """A mistake in features, labels or a manifest, worded for its user."""

    user_error = True
