"""What people look at: figures and tables made from a posterior."""
