"""What the API takes and gives, as pydantic models; rows of the database never leave."""
