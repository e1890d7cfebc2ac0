"""What a neighbour could find out from what it is sent: attacks on a finished run, and what they come to."""
