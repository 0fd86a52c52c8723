"""Every kernel to the machine code of each GPU it is for, without one."""
