"""Sheds columns: the channel is too narrow (Ahuja 2006, better)."""
