"""Printed texts about results, trainings and pairs."""
