"""What is done to Spillway on purpose: kills, races, hostile input; run by `make torture`, not by `make test`."""
