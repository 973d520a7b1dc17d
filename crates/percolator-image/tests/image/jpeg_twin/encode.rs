//! libjpeg-turbo's encoder, with settings that its Rust crate does not expose.

#![allow(unsafe_code, reason = "the encoder is C")]

use turbojpeg::raw;

use super::Numbers;

/// How a file is encoded.
#[derive(Debug)]
pub(crate) struct Encoding {
    quality: i32,
    sampling: i32,
    progressive: i32,
    optimized: i32,
    restart_blocks: i32,
    restart_rows: i32,
}

impl Encoding {
    pub(crate) fn random(numbers: &mut Numbers) -> Self {
        let samplings = [
            raw::TJSAMP_TJSAMP_444,
            raw::TJSAMP_TJSAMP_422,
            raw::TJSAMP_TJSAMP_420,
            raw::TJSAMP_TJSAMP_GRAY,
            raw::TJSAMP_TJSAMP_440,
            raw::TJSAMP_TJSAMP_411,
            raw::TJSAMP_TJSAMP_441,
        ];
        let restarts = numbers.below(3);
        Self {
            quality: 5 + numbers.below(96) as i32,
            sampling: samplings[numbers.below(samplings.len())],
            progressive: numbers.below(2) as i32,
            optimized: numbers.below(2) as i32,
            restart_blocks: if restarts == 1 { 1 + numbers.below(20) as i32 } else { 0 },
            restart_rows: if restarts == 2 { 1 + numbers.below(3) as i32 } else { 0 },
        }
    }

    /// Encodes these pixels, in the order B, G, R.
    pub(crate) fn encode(&self, pixels: &[u8], height: usize, width: usize) -> Vec<u8> {
        assert_eq!(pixels.len(), 3 * height * width);
        // SAFETY: the number is one of the kinds that the function knows.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_COMPRESS as i32) };
        assert!(!handle.is_null());
        for (name, value) in [
            (raw::TJPARAM_TJPARAM_QUALITY, self.quality),
            (raw::TJPARAM_TJPARAM_SUBSAMP, self.sampling),
            (raw::TJPARAM_TJPARAM_PROGRESSIVE, self.progressive),
            (raw::TJPARAM_TJPARAM_OPTIMIZE, self.optimized),
            (raw::TJPARAM_TJPARAM_RESTARTBLOCKS, self.restart_blocks),
            (raw::TJPARAM_TJPARAM_RESTARTROWS, self.restart_rows),
        ] {
            // SAFETY: the handle is valid, and the function refuses settings it does not take.
            let status = unsafe { raw::tj3Set(handle, name as i32, value) };
            // Setting zero restart markers fails if there are none.
            assert!(status == 0 || value == 0, "{self:?}: setting {name}");
        }
        let (mut out, mut len) = (std::ptr::null_mut(), 0);
        let (across, down) = (width as i32, height as i32);
        // SAFETY: there are as many pixels as the sizes say, and the encoder allocates room for the file.
        let status = unsafe {
            raw::tj3Compress8(
                handle,
                pixels.as_ptr(),
                across,
                3 * across,
                down,
                raw::TJPF_TJPF_BGR,
                &raw mut out,
                &raw mut len,
            )
        };
        assert!(status == 0 && !out.is_null(), "{self:?}: {height}x{width}");
        let len = usize::try_from(len).unwrap();
        // SAFETY: the encoder has written `len` bytes there, and nobody else has them.
        let file = unsafe { std::slice::from_raw_parts(out, len) }.to_vec();
        // SAFETY: it is the encoder's buffer, and nothing uses it any more.
        unsafe { raw::tj3Free(out.cast()) };
        // SAFETY: the handle is valid, and nothing uses it any more.
        unsafe { raw::tj3Destroy(handle) };
        file
    }
}
