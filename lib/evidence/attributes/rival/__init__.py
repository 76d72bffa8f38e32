"""The lever `attributes` with another's decisions: registered for a run in its place, it sheds as it is told."""
