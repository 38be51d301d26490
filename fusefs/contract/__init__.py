"""The contract as pure code: paths, levels, views, answers. Nothing here does I/O."""
