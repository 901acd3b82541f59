"""Who leads a set of brokers: one document in a store with compare-and-swap, and what each member does next."""
