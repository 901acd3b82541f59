"""What pages show. A poll is `async (context, rest of the key) -> parts by name`; `polls.POLLS` is the table of all."""
