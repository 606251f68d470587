//! Real programs do under the library what they do without it: the same output, exit code and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{DISK, World, ended, has};

/// A program, and what a shell does with it. What a script prints and leaves must not depend on time or chance.
const SCRIPTS: [(&str, &str); 27] = [
    (
        "dd",
        "dd if=/dev/urandom of=seed bs=64k count=1 2>/dev/null; rm seed; dd if=/dev/zero of=a bs=1M count=9 conv=fsync",
    ),
    ("dd", "seq 300000 >a; dd if=a of=b bs=7777; dd if=b bs=64k of=c seek=3 conv=notrunc,fdatasync; cksum a b c"),
    ("cp", "seq 200000 >a; cp a b; cp --sparse=always --reflink=never b c; cat a b >>c; cmp a b; wc c"),
    ("sort", "seq 100000 | sort -R --random-source=/dev/zero >a; sort -n -S 1M -T . a >b; sort -c -n b; md5sum b"),
    (
        "tar",
        "mkdir d; for i in $(seq 50); do seq $i 999 >d/$i; done; tar --mtime=@0 -cf a.tar d; mkdir e; \
         tar -xf a.tar -C e; diff -r d e/d",
    ),
    ("gzip", "seq 100000 >a; gzip -n a; gzip -dc a.gz | md5sum"),
    ("split", "seq 50000 >a; split -b 10000 a part-; cat part-* | cmp - a; shuf --random-source=/dev/zero a | md5sum"),
    (
        "sqlite3",
        "sqlite3 db 'pragma journal_mode=wal; create table t(a,b); \
         with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i,hex(i) from n; \
         create index x on t(b); select count(*),sum(a) from t; pragma integrity_check; vacuum;'; \
         sqlite3 db .dump | md5sum; rm db*",
    ),
    (
        "git",
        "export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' HOME=.; git init -q -b main g; cd g; \
         for i in 1 2 3 4; do seq $i 9999 >f$i; git add .; git -c user.name=a -c user.email=b commit -qm $i; done; \
         git gc -q; git fsck --strict; git log --oneline | cat; cd ..; rm -rf g",
    ),
    (
        "python3",
        "python3 -c 'import mmap,os\nf=open(\"a\",\"wb\",0)\n[f.write(bytes([i%251])*3000) for i in range(900)]\nos.fsync(f)\nm=os.open(\"a\",os.O_RDWR)\nb=[bytearray(5000),bytearray(3)]\nprint(os.preadv(m,b,70),sum(b[0]),os.pwritev(m,[b\"x\"*9,b\"y\"],5),os.read(m,9),os.pread(m,9,2699999),os.pread(m,9,10**9))\nd=os.dup(m);os.close(m);print(os.lseek(d,0,1),os.read(d,3))\nos.posix_fallocate(d,0,10**6);os.ftruncate(d,1000)'",
    ),
    (
        "fio",
        "fio --name=a --filename=a --size=4M --rw=randrw --bs=16k --ioengine=psync --verify=crc32c --randseed=7 --output=/dev/null; \
         fio --name=s --filename=s --size=1M --rw=write --bs=4k --ioengine=sync --fsync=16 --verify=md5 --output=/dev/null; \
         fio --name=v --filename=v --size=1M --rw=randwrite --bs=4k --ioengine=pvsync2 --verify=md5 --output=/dev/null; \
         rm -f a s v *.state",
    ),
    (
        "perl",
        "perl -e 'open F,\">a\";print F $_ x 99 for 1..999;close F;open F,\"<a\";$/=\\4096;$s+=length while<F>;print $s'",
    ),
    ("xargs", "seq 40 | xargs -P 8 -I{} sh -c 'seq {} 2000 >f{}'; cat $(ls | sort) | md5sum"),
    (
        "sha256sum",
        "seq 400000 >a; sha256sum a >sums; sha256sum -c sums; sha256sum <a; seq 9 >>a; \
         sha256sum -c sums 2>/dev/null || echo $?",
    ),
    ("tee", "seq 90000 | tee a b >c; seq 5 | tee -a a | tail -n 1; cmp b c; wc a"),
    (
        "truncate",
        "seq 9999 >a; truncate -s 1M a; truncate -s -5 a; truncate -r a b; truncate -s %4096 a; \
         stat -c '%n %s' a b; cksum a b",
    ),
    (
        "cmp",
        "seq 70000 >a; sed 's/4711/x/' a >b; cmp a b || echo $?; cmp -n 9999 a b; \
         cmp -i 30000:29997 a b || echo $?; cmp a a",
    ),
    (
        "install",
        "seq 30000 >a; install -m 640 a b; install -D -m 600 a d/e/f; install -d -m 750 g; \
         stat -c '%n %a %s' b d/e/f; cmp a d/e/f",
    ),
    ("mv", "seq 20000 >a; mkdir d; mv a b; mv b d; seq 9 >c; mv --backup=numbered c d/b; ls d; wc d/*"),
    ("ln", "seq 20000 >a; ln a b; ln -s a c; ln -sfn b c; seq 7 >>c; stat -c '%n %h %N' a b c; cmp a b"),
    (
        "shuf",
        "shuf -i 1-50000 --random-source=/dev/zero -o a; shuf -n 7 --random-source=a a; shuf -o a --random-source=/dev/zero a",
    ),
    (
        "xz",
        "seq 60000 >a; xz -T1 -k a; xz -t a.xz; xz -dc a.xz | cmp - a; xz -T2 --block-size=64KiB a -c | xz -dc | md5sum",
    ),
    (
        "find",
        "mkdir -p d/e; for i in 1 2 3 4 5; do seq $i 3000 >d/$i.txt; seq $i >d/e/$i.old; done; \
         find d -name '*.txt' -size +2k -exec md5sum {} + | sort; \
         find d -name '*.old' -exec sh -c 'mv $1 $1.moved' - {} \\;; find d -name '[12]*' -delete; find d | sort",
    ),
    ("sed", "seq 50000 >a; sed -i.old -e 's/9/nine/g' -e 5d -e '7w w' a; cksum a a.old w"),
    (
        "sqlite3",
        "seq 20000 | sed 's/.*/&,row &/' >in.csv; sqlite3 db 'create table t(a integer,b)'; \
         sqlite3 -csv db '.import in.csv t' 'create index x on t(b)' \
         \"select count(*),sum(a),min(b) from t where b like '%7'\" 'delete from t where a%3=0' vacuum; \
         sqlite3 db 'pragma integrity_check' .dump | md5sum; rm db",
    ),
    (
        "mariadbd",
        "o='--no-defaults -uroot -S s'; mkdir d; \
         mariadb-install-db --no-defaults --user=root --datadir=$PWD/d --auth-root-authentication-method=normal >/dev/null 2>&1; \
         mariadbd --no-defaults --user=root --datadir=$PWD/d --socket=$PWD/s --skip-networking --innodb-buffer-pool-size=8M \
         --innodb-flush-method=O_DIRECT 2>log & \
         for i in $(seq 600); do mariadb-admin $o ping >/dev/null 2>&1 && break; sleep 0.1; done; \
         mariadb-slap $o -a --concurrency=4 --number-of-queries=400 --auto-generate-sql-load-type=mixed --engine=innodb >/dev/null; \
         mariadb $o -e 'create database t; use t; create table n(a int primary key, b char(200)) engine=innodb; \
         insert into n select seq, repeat(seq,20) from seq_1_to_20000; update n set b=reverse(b) where a%3=0; \
         delete from n where a%7=0; select count(*), sum(a), sum(crc32(b)) from n; check table n extended'; \
         mariadb-dump $o --skip-dump-date t | md5sum; mariadb-admin $o shutdown; wait; ls d/t; rm -r d log",
    ),
    (
        "rsync",
        "mkdir -p s/t; for i in $(seq 30); do seq $i 2000 >s/t/$i; done; rsync -a s/ d; seq 5 >>s/t/7; rm s/t/9; \
         rsync -a --delete --checksum --inplace s/ d; diff -r s d; sed -i s/5/five/ s/t/8; \
         rsync -a --no-whole-file s/ d; diff -r s d; find d | sort",
    ),
];

/// Everything in a directory, by path.
pub(super) fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn programs_do_what_they_do_without_it() {
    for (program, script) in SCRIPTS {
        if !has(program) {
            continue;
        }
        let (plain, managed) = (World::new(), World::new());
        let disk = managed.file("disk.yaml", DISK);
        let without = ended(plain.command("sh", &["-ec", script]));
        assert_eq!(without.code, Some(0), "{script}\n{}", without.err);
        let with = managed.run(&["--disk", &disk, "--explain"], &["sh", "-ec", script]);
        let told = &with.err;
        assert_eq!(with.code, without.code, "{script}\n{told}");
        assert_eq!(with.out, without.out, "{script}\n{told}");
        assert!(contents(&managed.data()) == contents(&plain.data()), "files differ: {script}\n{told}");
        assert!(told.contains("through the gate: ") && !told.contains("was not loaded"), "{script}\n{told}");
    }
}
