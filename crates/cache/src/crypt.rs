//! Encrypts blocks, so that the disks alone reveal none.
//!
//! # Why
//! Local disks of cloud machines, and disks that are returned, hold the data that was cached on them. The object store
//! or volume behind the cache has its own encryption; this protects the copy here.
//!
//! # How it works
//! AES-256-GCM (NIST SP 800-38D) with the crate `aes-gcm`. A stored block is
//!
//! ```text
//! 8 life   4 number   ciphertext, as long as the block   16 tag
//! ```
//! and the hash of its key is associated data, so a block in the place of another does not open. A *life* is an
//! opening of the cache, named by 64 bits of the system's random numbers (`getrandom(2)`), never of the cache's seed.
//! Each life has a key of its own, derived from the caller's, and numbers its blocks. Life and number form the nonce,
//! so no nonce repeats under a key, even after a crash, although nothing is recorded on disk. After 2^32 blocks a new
//! life begins.
//!
//! Keys are derived as in AES-GCM-SIV (RFC 8452, section 4): the caller's key encrypts blocks of a counter and 12
//! bytes that name the purpose, and half of each result is used. The caller's key is used for nothing else. Also
//! derived from it are 32 bytes in the superblock that reveal a wrong key, and the seed of key hashes. The disk holds
//! only the salt of that seed, so an attacker with the disks cannot try out which keys are cached.
//!
//! # Limits
//! Two lives of the same name would share a key and its nonces: the probability is 2^-25 after a million openings with
//! one key. Not hidden are lengths, frequency of use, and which blocks belong to one life. XXH3, which hashes the
//! keys, is not cryptographic: an attacker that chooses cached keys and sees the disks may learn about its seed. An
//! attacker that can write to the disk can put back an older block at a place to which the index still points: its tag
//! is valid, and only the CRC-32C in the index differs.
//!
//! # Example
//! A block of 8192 bytes is stored as 8220, and takes 12 KiB on sectors of 4 KiB: with encryption, blocks of 8164
//! bytes fit best.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use aes_gcm::aead::Generate;
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};

use crate::key::KeyHash;
use crate::sync::{lock, read, write};

/// Bytes that a stored block is longer than the block: nonce and tag.
pub(crate) const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

pub(crate) const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

const LIFE_BYTES: usize = 8;

/// Most keys of other lives kept ready.
const MAX_LIVES: usize = 1024;

/// Encrypts and decrypts blocks with one key.
pub(crate) struct Cipher {
    root: Aes256,
    /// The life in which blocks are encrypted; `None` before the first block, and when all numbers of a life are used.
    life: Mutex<Option<Life>>,
    /// Keys of lives used so far.
    keys: RwLock<HashMap<[u8; LIFE_BYTES], Arc<Aes256Gcm>>>,
}

struct Life {
    name: [u8; LIFE_BYTES],
    key: Arc<Aes256Gcm>,
    /// Number of the next block in this life.
    next: u32,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher") // Never the key.
    }
}

impl Cipher {
    /// Returns a cipher with `key`, which should be random.
    pub(crate) fn new(key: &[u8; 32]) -> Cipher {
        Cipher { root: Aes256::new(key.into()), life: Mutex::default(), keys: RwLock::default() }
    }

    /// Derives 32 bytes for a purpose. Without the caller's key they look random.
    fn derive(&self, what: [u8; 4], which: [u8; LIFE_BYTES]) -> [u8; 32] {
        let mut derived = [0; 32];
        // Counters 0 and 1 derive a different key in RFC 8452.
        for (number, half) in (2_u32..).zip(derived.chunks_exact_mut(8)) {
            let mut block = [0; 16];
            let parts = number.to_le_bytes().into_iter().chain(what).chain(which);
            block.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
            let mut block = block.into();
            self.root.encrypt_block(&mut block);
            half.iter_mut().zip(block).for_each(|(to, from)| *to = from);
        }
        derived
    }

    fn key_of(&self, life: [u8; LIFE_BYTES]) -> Arc<Aes256Gcm> {
        if let Some(key) = read(&self.keys).get(&life) {
            return Arc::clone(key);
        }
        let key = Arc::new(Aes256Gcm::new(&self.derive(*b"LIFE", life).into()));
        let mut keys = write(&self.keys);
        if keys.len() >= MAX_LIVES {
            keys.clear();
        }
        keys.insert(life, Arc::clone(&key));
        key
    }

    /// Returns a nonce that was never used, and its key; `None` if the system returns no random numbers.
    fn next_nonce(&self) -> Option<([u8; NONCE_BYTES], Arc<Aes256Gcm>)> {
        let mut present = lock(&self.life);
        let life = match present.take() {
            Some(life) => life,
            None => {
                let name = <[u8; LIFE_BYTES]>::try_generate().ok()?;
                Life { name, key: self.key_of(name), next: 0 }
            }
        };
        let mut nonce = [0; NONCE_BYTES];
        let parts = life.name.into_iter().chain(life.next.to_le_bytes());
        nonce.iter_mut().zip(parts).for_each(|(to, from)| *to = from);

        let key = Arc::clone(&life.key);
        if let Some(next) = life.next.checked_add(1) {
            *present = Some(Life { next, ..life });
        }
        Some((nonce, key))
    }

    /// Writes the encryption of `plain` under the key with that hash to `sealed`, which is [`OVERHEAD_BYTES`] longer.
    /// Returns `None` if it has another length, or the system returns no random numbers; its bytes are then useless.
    pub(crate) fn seal(&self, hash: &KeyHash, plain: &[u8], sealed: &mut [u8]) -> Option<()> {
        let (to_nonce, rest) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
        let (body, to_tag) = rest.split_last_chunk_mut::<TAG_BYTES>()?;
        if body.len() != plain.len() {
            return None;
        }
        let (nonce, key) = self.next_nonce()?;
        *to_nonce = nonce;
        body.copy_from_slice(plain);
        *to_tag = key.encrypt_inout_detached(&nonce.into(), &hash.0, body.into()).ok()?.into();
        Some(())
    }

    /// Decrypts in place what [`Cipher::seal`] made for the key with that hash. Returns the part of `sealed` that is
    /// the block. `None` if `sealed` is anything else: another key's, changed, or too short; its bytes are then
    /// useless.
    pub(crate) fn open<'a>(&self, hash: &KeyHash, sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
        let (body, tag) = rest.split_last_chunk_mut::<TAG_BYTES>()?;
        let key = self.key_of(*nonce.first_chunk::<LIFE_BYTES>()?);
        let (nonce, tag) = ((*nonce).into(), (*tag).into());
        key.decrypt_inout_detached(&nonce, &hash.0, (&mut *body).into(), &tag).ok()?;
        Some(body)
    }

    /// Returns the bytes in the superblock that reveal a wrong key: the same for the same key only.
    pub(crate) fn key_check(&self) -> [u8; 32] {
        self.derive(*b"TEST", [0; LIFE_BYTES])
    }

    /// Returns the seed of key hashes, from the salt in the superblock.
    pub(crate) fn hash_seed(&self, salt: u64) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.derive(*b"HASH", salt.to_le_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u8) -> KeyHash {
        KeyHash([i; 10])
    }

    fn sealed(cipher: &Cipher, hash: KeyHash, plain: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; plain.len() + OVERHEAD_BYTES];
        cipher.seal(&hash, plain, &mut sealed).unwrap();
        sealed
    }

    #[test]
    fn a_block_opens_under_its_own_key_only() {
        let cipher = Cipher::new(&[7; 32]);
        for len in [0, 1, 15, 16, 17, 8192] {
            let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let sealed = sealed(&cipher, hash(1), &plain);
            let open =
                |cipher: &Cipher, hash: KeyHash| cipher.open(&hash, &mut sealed.clone()).map(|plain| plain.to_vec());
            assert_eq!(open(&cipher, hash(1)), Some(plain));
            assert_eq!(open(&cipher, hash(2)), None);
            assert_eq!(open(&Cipher::new(&[8; 32]), hash(1)), None);
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_opens() {
        let cipher = Cipher::new(&[7; 32]);
        let sealed = sealed(&cipher, hash(1), b"a short block");
        assert_eq!(cipher.seal(&hash(1), b"a longer block", &mut sealed.clone()), None);
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
            assert!(seen.insert(sealed(&cipher, hash(1), b"the same")[..NONCE_BYTES].to_vec()));
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

    /// Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation" (2005), appendix B: the crate
    /// implements the published algorithm.
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
        let cipher = Aes256Gcm::new(&<[u8; 32]>::try_from(key).unwrap().into());
        let tag = cipher.encrypt_inout_detached(&nonce.into(), &aad, text.as_mut_slice().into()).unwrap();
        assert_eq!(tag.to_vec(), bytes("76fc6ece0f4e1768cddf8853bb2d551b"));
        assert_eq!(text[..4], bytes("522dc1f0"));
    }

    /// The first vector of RFC 8452, appendix C.2: its record encryption key.
    #[test]
    fn keys_are_derived_as_published() {
        let mut key = [0; 32];
        key[0] = 1;
        let derived = Cipher::new(&key).derive([3, 0, 0, 0], [0; 8]);
        let hex: String = derived.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "b914f4742be9e1d7a2f84addbf96dec3456e3c6c05ecc157cdbf0700fedad222");
    }

    #[test]
    fn a_life_numbers_its_blocks_and_has_a_key_of_its_own() {
        let sealed = |cipher: &Cipher| sealed(cipher, hash(1), b"a block");
        let (first, second) = (Cipher::new(&[7; 32]), Cipher::new(&[7; 32]));
        let (one, two, other) = (sealed(&first), sealed(&first), sealed(&second));
        assert_eq!(
            (&one[8..12], &two[8..12], &other[8..12]),
            (&[0, 0, 0, 0][..], &[1, 0, 0, 0][..], &[0, 0, 0, 0][..])
        );
        assert!(one[..8] == two[..8] && one[..8] != other[..8], "an opening is a life");
        assert_eq!(second.open(&hash(1), &mut one.clone()).as_deref(), Some(&b"a block"[..]), "the next one reads it");

        // When the numbers are used up, another life begins.
        lock(&first.life).as_mut().unwrap().next = u32::MAX;
        let (last, next) = (sealed(&first), sealed(&first));
        assert!(last[..8] == one[..8] && last[8..12] == [0xff; 4]);
        assert!(next[..8] != one[..8] && next[8..12] == [0; 4]);
    }

    #[test]
    fn whoever_has_the_disks_has_no_seed_of_hashes() {
        let seed = Cipher::new(&[7; 32]).hash_seed(1);
        assert_eq!(seed, Cipher::new(&[7; 32]).hash_seed(1));
        assert!(seed != 1 && seed != Cipher::new(&[7; 32]).hash_seed(2) && seed != Cipher::new(&[8; 32]).hash_seed(1));
    }
}
