package up

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// databasePath is the path of the database of a hub's store.
const databasePath = "store/member/snap/db"

// kept returns the files of the certificates by which hosts recognize their hub. A hub makes all its other
// certificates anew.
func kept() []string {
	var all []string
	for _, name := range []string{"hub", "store", "accounts"} {
		all = append(all, "pki/"+name+".crt", "pki/"+name+".key")
	}
	return all
}

// Backup writes everything that makes up a running hub: its store at one moment, and its authorities. Whoever
// has the file and one of its identities can be the hub.
func (o Options) Backup(ctx context.Context, w io.Writer, to ...age.Recipient) error {
	store, err := os.CreateTemp(o.Dir, ".backup-")
	if err != nil {
		return fmt.Errorf("--dir: expected a folder that takes a copy of the store: %w", err)
	}
	defer os.Remove(store.Name())
	defer store.Close()
	if err = o.snapshot(ctx, store); err != nil {
		return o.full("the store", err)
	}
	info, err := store.Stat()
	if err == nil {
		_, err = store.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	authorities, err := o.authorities()
	if err != nil {
		return err
	}
	return seal(w, append(authorities, content{databasePath, store, info.Size()}), to...)
}

// content is a file of an archive.
type content struct {
	name string
	data io.Reader
	size int64
}

// authorities returns the files of a hub's certificates that a backup keeps.
func (o Options) authorities() (all []content, err error) {
	for _, name := range kept() {
		data, rerr := os.ReadFile(o.file(name))
		all, err = append(all, content{name, bytes.NewReader(data), int64(len(data))}), errors.Join(err, rerr)
	}
	return all, err
}

// seal writes files to an encrypted archive.
func seal(w io.Writer, all []content, to ...age.Recipient) error {
	sealed, err := age.Encrypt(w, to...)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(sealed)
	for _, one := range all {
		head := &tar.Header{Name: one.name, Mode: 0o600, Size: one.size, ModTime: time.Now()}
		if err = archive.WriteHeader(head); err == nil {
			_, err = io.Copy(archive, one.data)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), sealed.Close())
}

// snapshot reads the database from the store. The data ends with a digest, which snapshot checks and strips.
func (o Options) snapshot(ctx context.Context, to *os.File) error {
	said, err := o.post(ctx, "maintenance/snapshot", struct{}{})
	if err != nil {
		return err
	}
	defer said.Close()
	sum, tail := sha256.New(), []byte{}
	for parts := json.NewDecoder(said); ; {
		var part struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		if err = parts.Decode(&part); errors.Is(err, io.EOF) {
			break
		}
		if err == nil && part.Error != nil {
			err = errors.New(string(part.Error))
		}
		if err != nil {
			return err
		}
		tail = append(tail, part.Result.Blob...)
		body := tail[:max(0, len(tail)-sha256.Size)]
		if _, err = io.MultiWriter(to, sum).Write(body); err != nil {
			return err
		}
		tail = bytes.Clone(tail[len(body):])
	}
	if !bytes.Equal(sum.Sum(nil), tail) {
		return errors.New("what it has sent is not whole")
	}
	return nil
}

// Restore makes the folder of a hub from a backup. The folder must not exist or be empty. The store has the
// revision of the backup, so hosts that have seen a later one do not follow the hub until they are rehomed.
func (o Options) Restore(r io.Reader, with ...age.Identity) error {
	finish := func(dir string) error { return alone(filepath.Join(dir, databasePath)) }
	return o.make(r, append(kept(), databasePath), finish, with...)
}

// make makes the folder of a hub from files that seal has written, after finish has processed them. The
// folder must not exist or be empty.
func (o Options) make(r io.Reader, names []string, finish func(dir string) error,
	with ...age.Identity) error {
	if err := os.Remove(o.Dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty one is allowed
		return fmt.Errorf("--dir %s: expected no folder, or an empty one: %w", o.Dir, err)
	}
	made, err := os.MkdirTemp(filepath.Dir(o.Dir), ".restore-")
	if err != nil {
		return fmt.Errorf("--dir %s: expected a folder that can be made: %w", o.Dir, err)
	}
	defer os.RemoveAll(made)
	open, err := age.Decrypt(r, with...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); err != nil && !other {
		err = fmt.Errorf("expected a file of isolane-hub backup or invite: %w", err)
	}
	if err != nil {
		return err
	}
	if err = unpack(open, made, names); err != nil {
		return o.full("expected a whole file", err)
	}
	if err = finish(made); err != nil {
		return err
	}
	return os.Rename(made, o.Dir)
}

// full says what was wrong, or that the disk of the hub is full: it is not the one of the file.
func (o Options) full(what string, err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("--dir %s: expected room on its disk: %s", o.Dir, unix.ENOSPC.Error())
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unpack writes exactly the files of these names.
func unpack(r io.Reader, dir string, names []string) error {
	archive := tar.NewReader(r)
	for _, want := range names {
		head, err := archive.Next()
		if err == nil && head.Name != want {
			err = fmt.Errorf("expected %s, found %q", want, head.Name)
		}
		file := filepath.Join(dir, want)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		if err != nil {
			return err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, archive, head.Size)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("expected no more files"), err)
	}
	return nil
}

// alone removes the log and the members from a database of etcd. The store then begins anew with one member,
// with the same keys and revisions. etcdutl does the same.
func alone(file string) error {
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"members", "members_removed"} {
			if tx.Bucket([]byte(bucket)) == nil {
				continue
			}
			if derr := tx.DeleteBucket([]byte(bucket)); derr != nil {
				return derr
			}
		}
		meta := tx.Bucket([]byte("meta"))
		if meta == nil {
			return errors.New("the store: expected a database of etcd")
		}
		for _, key := range []string{"consistent_index", "term", "confState"} {
			if derr := meta.Delete([]byte(key)); derr != nil {
				return derr
			}
		}
		return nil
	})
	return errors.Join(err, db.Close())
}
