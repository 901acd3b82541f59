"""Who may do what: signatures, users, policies, and what each request needs. Decisions only: no I/O."""
