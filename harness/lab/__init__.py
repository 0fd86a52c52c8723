"""What is measured of this project and written up, from a checkout: no part of the wheel."""
