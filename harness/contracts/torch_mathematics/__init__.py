"""The mathematics of a torch function, as a reference against the array API: for what is written in torch and for gradients."""
