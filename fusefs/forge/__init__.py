"""Where repositories come from and go to: forges and git transport."""
