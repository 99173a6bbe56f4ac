"""Where two sides of a comparison spend their time, line by line."""
