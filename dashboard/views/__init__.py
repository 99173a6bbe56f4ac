"""What pages show, as data: read and computed, without Streamlit and without drawing."""
