"""What people read: screens, explanations, status, alerts, metrics and the report page."""
