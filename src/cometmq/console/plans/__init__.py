"""What changes something. Each action says first what it would do (`store.Prepared`), and does it when asked again."""
