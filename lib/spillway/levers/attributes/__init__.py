"""The attribute lever: shed and round columns if the channel is too narrow (after Ahuja 2006, with extensions)."""
