"""Number encodings, one family a file, decoder and encoder side by side."""
