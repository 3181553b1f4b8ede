"""What commands print about results, trainings and pairs."""
