//! States that are told apart by their length and by each of their bytes.

/// Another number, for each one, that looks random.
pub(crate) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The state after so many steps: as long as that says, too.
pub(crate) fn state_of(number: u64) -> Vec<u8> {
    let words = 100 + mixed(number) % 20_000;
    (0..words).flat_map(|word| if word == 0 { number } else { mixed(number + word) }.to_le_bytes()).collect()
}

/// The number of a state, all of which must be as it was saved.
pub(crate) fn number_of(state: &[u8]) -> u64 {
    let number = u64::from_le_bytes(state[..8].try_into().unwrap());
    assert!(state == state_of(number), "the state {number} is not what was saved");
    number
}
