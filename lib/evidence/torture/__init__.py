"""What the product does when it is killed, raced and fed nonsense: `make torture`."""
