"""Worlds that episodes happen in: phones, web pages, and the contract between them and the rest."""
