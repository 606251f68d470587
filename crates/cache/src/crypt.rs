//! Blocks that nobody can read who has only the disks.
//!
//! # Why
//! Local disks of machines in a cloud, and disks that are sent back, hold what was cached on them. The object store or
//! volume behind the cache has its own encryption; this is for the copy here.
//!
//! # How it works
//! AES-256-GCM (NIST SP 800-38D) with the crate `aes-gcm`. A stored block is
//!
//! ```text
//! 12 nonce, random   ciphertext, as long as the block   16 tag
//! ```
//! and the hash of its key is associated data, so a block that lies where another should be does not open. Nonces come
//! from the system's random numbers (`getrandom(2)`), never from the cache's seed: two runs with one seed must not
//! repeat them.
//!
//! A wrong key is recognised when the cache is opened: the superblock holds the ciphertext and tag of 16 zero bytes
//! under a nonce that no block ever gets ([`Cipher::seal`] draws again in the unlikely case). It says as much of the
//! key as any block whose content is known: nothing that helps to find it. No second message has this nonce, which is
//! what GCM asks.
//!
//! # Limits
//! With random nonces of 96 bits, a key is good for 2^32 blocks (SP 800-38D, 8.3: the chance that two share a nonce
//! stays below 2^-32): 32 TiB of inserts and moves at 8 KiB, over all caches and lives that use the key. Beyond, two
//! blocks with one nonce betray their difference to whoever has both, and blocks can be forged. Create the cache anew
//! with another key in time; the chance grows with the square of the number, about 2^-25 at 512 TiB. What is not
//! hidden: lengths, hashes of keys, how often something is used. A block that was replaced can be put back by whoever
//! writes to the disk, where the index still points to it: its tag is right, and only the CRC-32C in the index tells
//! them apart.
//!
//! # Example
//! A block of 8192 bytes is stored as 8220, and takes 12 KiB on sectors of 4 KiB: with encryption, blocks of 8164
//! bytes fit best.

use aes_gcm::aead::Generate;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};

use crate::key::KeyHash;

/// By how much a stored block is longer: nonce and tag.
pub(crate) const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

pub(crate) const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// The nonce of [`Cipher::key_check`] alone.
const CHECK_NONCE: [u8; NONCE_BYTES] = *b"PLIMCHECKKEY";

/// Why a block was not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    /// The system gives no random numbers.
    NoRandomness,
    /// Longer than AES-GCM allows (64 GiB).
    TooLong,
}

impl std::fmt::Display for SealError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SealError::NoRandomness => "the system gives no random numbers (getrandom): nothing can be encrypted",
            SealError::TooLong => "longer than AES-GCM allows",
        })
    }
}

impl std::error::Error for SealError {}

/// A key, ready for use. See the module's documentation.
pub(crate) struct Cipher(Aes256Gcm);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher") // Never the key.
    }
}

impl Cipher {
    /// With this key, which should be random.
    pub(crate) fn new(key: &[u8; 32]) -> Cipher {
        Cipher(Aes256Gcm::new(key.into()))
    }

    /// Appends `plain`, encrypted for the key with that hash, to `out`: [`OVERHEAD_BYTES`] more than `plain`.
    ///
    /// # Errors
    /// See [`SealError`]; `out` is then as it was.
    pub(crate) fn seal(&self, hash: &KeyHash, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let nonce = random_nonce()?;
        let begin = out.len();
        out.reserve(plain.len() + OVERHEAD_BYTES);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plain);
        let body = out.get_mut(begin + NONCE_BYTES..).unwrap_or_default();
        match self.0.encrypt_inout_detached(&nonce.into(), &hash.0, body.into()) {
            Ok(tag) => {
                out.extend_from_slice(&tag);
                Ok(())
            }
            Err(_) => {
                out.truncate(begin);
                Err(SealError::TooLong)
            }
        }
    }

    /// Decrypts in place what [`Cipher::seal`] made for the key with that hash, and returns the part of `sealed` that
    /// is the block. `None` where it is anything else: another key's, changed, too short; `sealed` then holds nothing
    /// of use.
    pub(crate) fn open<'a>(&self, hash: &KeyHash, sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
        let (body, tag) = rest.split_last_chunk_mut::<TAG_BYTES>()?;
        let (nonce, tag) = ((*nonce).into(), (*tag).into());
        self.0.decrypt_inout_detached(&nonce, &hash.0, (&mut *body).into(), &tag).ok()?;
        Some(body)
    }

    /// What the superblock keeps to recognise a wrong key: the same whenever it is the same key, another for another.
    pub(crate) fn key_check(&self) -> [u8; 32] {
        let mut check = [0; 32];
        let (text, tag) = check.split_at_mut(TAG_BYTES);
        // Fails only for texts of 64 GiB; a check that stays zero then is that of no key.
        if let Ok(made) = self.0.encrypt_inout_detached(&CHECK_NONCE.into(), b"key check", (&mut *text).into()) {
            tag.copy_from_slice(&made);
        }
        check
    }
}

fn random_nonce() -> Result<[u8; NONCE_BYTES], SealError> {
    loop {
        let nonce = <[u8; NONCE_BYTES]>::try_generate().map_err(|_| SealError::NoRandomness)?;
        if nonce != CHECK_NONCE {
            return Ok(nonce);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u8) -> KeyHash {
        KeyHash([i; 10])
    }

    #[test]
    fn a_block_opens_under_its_own_key_only() {
        let cipher = Cipher::new(&[7; 32]);
        for len in [0, 1, 15, 16, 17, 8192] {
            let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut sealed = b"before".to_vec();
            cipher.seal(&hash(1), &plain, &mut sealed).unwrap();
            assert_eq!(sealed.len(), 6 + len + OVERHEAD_BYTES);
            let open = |cipher: &Cipher, hash: KeyHash| {
                let mut bytes = sealed[6..].to_vec();
                cipher.open(&hash, &mut bytes).map(|plain| plain.to_vec())
            };
            assert_eq!(open(&cipher, hash(1)), Some(plain));
            assert_eq!(open(&cipher, hash(2)), None);
            assert_eq!(open(&Cipher::new(&[8; 32]), hash(1)), None);
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_opens() {
        let cipher = Cipher::new(&[7; 32]);
        let mut sealed = Vec::new();
        cipher.seal(&hash(1), b"a short block", &mut sealed).unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cipher.open(&hash(1), &mut flipped), None, "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(cipher.open(&hash(1), &mut sealed.clone()[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn the_same_block_is_never_stored_twice_the_same() {
        let cipher = Cipher::new(&[7; 32]);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut sealed = Vec::new();
            cipher.seal(&hash(1), b"the same", &mut sealed).unwrap();
            assert!(seen.insert(sealed[..NONCE_BYTES].to_vec()));
        }
    }

    #[test]
    fn a_wrong_key_is_recognised() {
        let check = Cipher::new(&[7; 32]).key_check();
        assert_eq!(check, Cipher::new(&[7; 32]).key_check());
        let mut other = [7; 32];
        other[31] ^= 1;
        assert_ne!(check, Cipher::new(&other).key_check());
        assert!(check[..16] != [0; 16] && check[16..] != [0; 16]);
        assert_eq!(format!("{:?}", Cipher::new(&[7; 32])), "Cipher");
    }

    /// Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation" (2005), appendix B: the crate is the
    /// one it says it is.
    #[test]
    fn a_published_vector() {
        let bytes = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
        };
        let key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let nonce: [u8; 12] = bytes("cafebabefacedbaddecaf888").try_into().unwrap();
        let mut text = bytes(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let aad = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let cipher = Cipher::new(&key.try_into().unwrap());
        let tag = cipher.0.encrypt_inout_detached(&nonce.into(), &aad, text.as_mut_slice().into()).unwrap();
        assert_eq!(tag.to_vec(), bytes("76fc6ece0f4e1768cddf8853bb2d551b"));
        assert_eq!(text[..4], bytes("522dc1f0"));
    }
}
