package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// longestFile is the longest scenario, in bytes.
const longestFile = 1 << 20

// read reads a file with one document, a map, and rejects characters that a terminal takes as commands. It
// leaves invalid YAML to the strict reader, which says where the error is.
func read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, longestFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > longestFile:
		return nil, errors.New("expected at most 1 MiB")
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("empty: expected a document of kind Scenario")
	}
	var document, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(data))
	if documents.Decode(&document) != nil {
		return data, nil
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("expected a map with apiVersion, kind, metadata and spec")
	}
	if !errors.Is(documents.Decode(&more), io.EOF) {
		return nil, errors.New("expected one document, found more")
	}
	return data, plain(&document)
}

// plain rejects control characters except line breaks and tabs, which scripts have.
func plain(n *yaml.Node) error {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if strings.ContainsFunc(n.Value, control) {
		return fmt.Errorf("line %d: %.60q: expected no control characters", n.Line, n.Value)
	}
	for _, child := range n.Content { // aliases have none: the anchors are checked where they are
		if err := plain(child); err != nil {
			return err
		}
	}
	return nil
}
