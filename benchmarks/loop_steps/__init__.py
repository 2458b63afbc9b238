"""What one step of an agent's loop costs: a decision of the model and one call of a tool, the model itself left out."""
