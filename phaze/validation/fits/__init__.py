"""Constants fitted to measurements, and what they say of rows that were left out of the fit."""
