"""The lever `quality`: each answer states its coverage (`sic`), and queries share a capacity too small for all."""
