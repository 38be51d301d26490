"""From texts to vectors: tokenizers, models, and the process that runs them."""
