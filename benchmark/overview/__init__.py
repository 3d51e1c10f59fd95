"""A dataset looked over before anything is trained: its faults, its classes, and how hard it is."""
