"""DigiRL: imitate the steps that values say were good, first offline and then online."""
