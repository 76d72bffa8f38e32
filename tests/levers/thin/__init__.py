"""A toy lever: drops every tenth row, keeps them aside, and gives them back. A package and a line in the registry."""
