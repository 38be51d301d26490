"""Finding by words and by meaning: pieces of contents, keyed by content."""
