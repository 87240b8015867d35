package lane

import (
	"fmt"
	"io"
	"os"
)

// ReadAll reads the lanes of all files that a user names: files, directories with files *.yaml and *.yml, and
// "-" for stdin.
func ReadAll(names []string, stdin io.Reader) ([]Lane, error) {
	var all []Lane
	for _, name := range names {
		if name == "-" {
			lanes, err := Parse("stdin", stdin)
			if err != nil {
				return nil, err
			}
			all = append(all, lanes...)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		lanes, err := Parse(name, f)
		f.Close() //nolint:errcheck // only read
		if err != nil {
			return nil, err
		}
		all = append(all, lanes...)
	}
	return all, nil
}
