package sriov

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

const devices = "/sys/bus/pci/devices"

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// card is a physical function.
type card struct {
	address string
	device  string // its network device
}

// cardOf finds a card by its network device or its PCI address.
func cardOf(name string) (card, error) {
	c := card{address: name}
	if !pciAddress.MatchString(name) {
		link, err := os.Readlink(path.Join("/sys/class/net", name, "device"))
		if err != nil {
			return c, err
		}
		if c.address = path.Base(link); !pciAddress.MatchString(c.address) {
			return c, fmt.Errorf("%s, the device that it belongs to, is no PCI function", c.address)
		}
	}
	found, err := os.ReadDir(c.file("net"))
	if err == nil && len(found) == 0 {
		err = fs.ErrNotExist
	}
	if err == nil {
		c.device = found[0].Name()
	}
	return c, err
}

func (c card) file(name string) string { return path.Join(devices, c.address, name) }

func (c card) number(name string) (int, error) {
	text, err := os.ReadFile(c.file(name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// functions returns the addresses of the existing virtual functions.
func (c card) functions() []string {
	var all []string
	for {
		link, err := os.Readlink(c.file(fmt.Sprint("virtfn", len(all))))
		if err != nil {
			return all
		}
		all = append(all, path.Base(link))
	}
}

// untested warns of a card's driver that nobody has tried.
func (c card) untested() string {
	driver, err := os.Readlink(c.file("driver"))
	if name := path.Base(driver); err == nil && name != "igb" {
		return " (untested with the driver " + name + ": only igb was tried)"
	}
	return ""
}

// kindPool is how many virtual functions a card has. The target is its PCI address. A value is the content of
// sriov_numvfs (Documentation/ABI/testing/sysfs-bus-pci), with those that are in use.
const kindPool = "vfs"

type pool struct{}

func (pool) Check(s journal.Step) error {
	n, err := strconv.Atoi(s.After)
	if pciAddress.MatchString(s.Target) && (err == nil && n >= 0 || s.After == "") {
		return nil
	}
	return fmt.Errorf("vfs %s %q: expected a PCI address and a number", s.Target, s.After)
}

// Read adds who uses functions: functions in use are not removed.
func (pool) Read(_ context.Context, s journal.Step) (string, error) {
	c := card{address: s.Target}
	n, err := c.number("sriov_numvfs")
	text := strconv.Itoa(n)
	for _, vf := range c.functions() {
		if by := host.FunctionInUse(os.DirFS("/"), vf); by != "" && by != "no driver" {
			text += ", " + vf + ": " + by
		}
	}
	return text, err
}

// InForce compares only the number.
func (pool) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	number, _, _ := strings.Cut(now, ",")
	return number == s.After, nil
}

// Write makes functions if there are none, or removes all: the kernel allows nothing else.
func (pool) Write(ctx context.Context, s journal.Step, value string) error {
	c := card{address: s.Target}
	now, err := c.number("sriov_numvfs")
	if err != nil {
		return err
	}
	if now > 0 && value != "0" {
		return fmt.Errorf("%s: there are %d virtual functions, and the kernel makes others only where there are "+
			"none: release the lanes with functions of this card, echo 0 > %[1]s, then apply",
			c.file("sriov_numvfs"), now)
	}
	if err = os.WriteFile(c.file("sriov_numvfs"), []byte(value), 0); err != nil || value == "0" {
		return err
	}
	return wait(ctx, func() bool { // wait for their drivers, which make the devices
		return !slices.ContainsFunc(c.functions(), func(vf string) bool {
			return host.FunctionInUse(os.DirFS("/"), vf) != ""
		})
	})
}

// wait repeats until is returns true, or five seconds have passed, which is no error.
func wait(ctx context.Context, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Name says which setting it is.
func (pool) Name(s journal.Step) string { return "virtual functions of " + s.Target }

// Shell returns a command that writes the number.
func (pool) Shell(s journal.Step) string {
	return fmt.Sprintf("echo %s > %s", s.After, card{address: s.Target}.file("sriov_numvfs"))
}
