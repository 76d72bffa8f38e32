"""Steps of one stream: plan, shed, recover, certify, train, sketch, and what they share."""
