"""The lever `attributes` with the decisions of a rival; it is registered for one run in place of the lever."""
