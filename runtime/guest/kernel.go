package guest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
)

// KernelPackage is the Debian package with a kernel suited to a virtual machine.
const KernelPackage = "linux-image-cloud-amd64"

// errNoKernel says that there is no kernel to boot.
var errNoKernel = errors.New("/boot/vmlinuz-*: expected a kernel for a virtual machine to boot, or the " +
	"path of another (kernel)")

// findKernel returns the newest kernel in /boot of root, by version: its path relative to root.
func findKernel(root fs.FS) (string, error) {
	all, err := fs.Glob(root, "boot/vmlinuz-*")
	if err != nil || len(all) == 0 {
		return "", errors.Join(err, errNoKernel)
	}
	return slices.MaxFunc(all, compareVersions), nil
}

// compareVersions compares names by the numbers in them, and then as text.
func compareVersions(a, b string) int {
	numbers := func(s string) (all []int) {
		for _, text := range regexp.MustCompile(`\d+`).FindAllString(s, -1) {
			n, _ := strconv.Atoi(text) // one that is too large counts as the largest
			all = append(all, n)
		}
		return all
	}
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), cmp.Compare(a, b))
}

// FileOfKernel returns the path of the kernel to boot, on the host that root shows.
func (g Guest) FileOfKernel(root fs.FS) (string, error) {
	if g.Kernel == "" {
		found, err := findKernel(root)
		return "/" + found, err
	}
	if _, err := fs.Stat(root, g.Kernel[1:]); err != nil {
		return "", fmt.Errorf("kernel: %w: expected a kernel image for a virtual machine", err)
	}
	return g.Kernel, nil
}
