"""One question answered under several settings: what is compared, how the replies differ, and the table of them."""
