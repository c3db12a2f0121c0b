"""PopART programs around one operator: built with the Builder, run by a session, values and gradients as anchors."""
