package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lanes"
)

// Users says as which users the commands of a hub run on this host. No hub can change it.
type Users struct {
	First, Last uint32   // a range that nobody else uses: each tenant gets one user
	Root        []string // tenants whose commands may be root
}

// String returns the range, as Set parses it.
func (u *Users) String() string { return fmt.Sprintf("%d-%d", u.First, u.Last) }

// Set parses a range of users.
func (u *Users) Set(text string) error {
	from, to, _ := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 32)
	last, lerr := strconv.ParseUint(to, 10, 32)
	if errors.Join(err, lerr) != nil || first == 0 || first > last || last > 1<<32-3 { // (uid_t)-1 is none
		return fmt.Errorf("expected users as FIRST-LAST, without 0, found %q", text)
	}
	u.First, u.Last = uint32(first), uint32(last)
	return nil
}

// checkUser checks that a command may be the user that it asks to be.
func (u Users) checkUser(s api.InstanceSpec) error {
	if s.Root && !slices.Contains(u.Root, s.Tenant) {
		return fmt.Errorf("spec.root: this host lets no commands of %s be root: expected no spec.root, or that "+
			"the agent of the host is started with --root %[1]s", s.Tenant)
	}
	return nil
}

// usersFile has the user of each tenant that was ever here. It stays, because files of that user may be left.
const usersFile = "users"

// userOf returns the user of a tenant.
func (u Users) userOf(dir, tenant string) (uint32, error) {
	file := filepath.Join(dir, usersFile)
	all, given := map[string]uint32{}, map[uint32]bool{}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	if is := all[tenant]; is >= u.First && is <= u.Last {
		return is, nil
	}
	for _, is := range all {
		given[is] = true
	}
	next := u.First
	for given[next] && next <= u.Last {
		next++
	}
	if next > u.Last {
		return 0, fmt.Errorf("--users %s: each is a tenant's: expected more of them", &u)
	}
	all[tenant] = next
	if data, err = json.Marshal(all); err == nil {
		err = desired.WriteFile(file, append(data, '\n'))
	}
	return next, err
}

// runAs returns the user of an Instance's command and, unless that is root, a folder of its own.
func (p *Instances) runAs(name string, s api.InstanceSpec) (with lanes.With, err error) {
	if err = p.users.checkUser(s); err != nil || s.Root {
		return with, err
	}
	if with.User, err = p.users.userOf(p.dir, s.Tenant); err != nil {
		return with, err
	}
	with.Private = p.privateDir(name)
	switch info, serr := os.Stat(with.Private); {
	case serr == nil && info.Sys().(*syscall.Stat_t).Uid == with.User:
		return with, nil
	case serr == nil:
		err = os.RemoveAll(with.Private) // left by another Instance
	}
	if err == nil {
		err = os.Mkdir(with.Private, 0o700)
	}
	if err == nil {
		err = os.Chown(with.Private, int(with.User), int(with.User))
	}
	return with, err
}

// privateDir returns the folder that an Instance has as /tmp and /var/tmp while it is on this host.
func (p *Instances) privateDir(name string) string { return filepath.Join(p.dir, name+".tmp") }
