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

// KernelPackage is the Debian package with the kernel that suits a virtual machine.
const KernelPackage = "linux-image-cloud-amd64"

// ErrNoKernel says that there is no kernel to boot.
var ErrNoKernel = errors.New("boot/vmlinuz-*: there is none for a virtual machine to boot: apt-get install " +
	KernelPackage + ", or name a file (kernel)")

// FindKernel returns the newest kernel in /boot of root, by version: its path below it.
func FindKernel(root fs.FS) (string, error) {
	all, err := fs.Glob(root, "boot/vmlinuz-*")
	if err != nil || len(all) == 0 {
		return "", errors.Join(err, ErrNoKernel)
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

// kernel is the file to boot.
func (g Guest) kernel(root fs.FS) (string, error) {
	if g.Kernel == "" {
		found, err := FindKernel(root)
		return "/" + found, err
	}
	if _, err := fs.Stat(root, g.Kernel[1:]); err != nil {
		return "", fmt.Errorf("kernel: %w: expected a kernel image: apt-get install %s", err, KernelPackage)
	}
	return g.Kernel, nil
}
