"""A toy lever with a crash in it, at the step that its settings say."""
