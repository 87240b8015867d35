package sites

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// TokenLifetime is how long a token is valid. It can be used once.
const TokenLifetime = time.Hour

// usedBy is the annotation of a token's secret with the UID of the request that has used the token up.
const usedBy = "isolane.dev/used-by"

// Token is what a host needs to join, as one word.
type Token struct {
	ID, Secret string // a bootstrap token of Kubernetes
	Authority  string // digest of the certificate by which the host recognizes the hub
}

// String returns the word that people copy.
func (t Token) String() string { return t.ID + "." + t.Secret + "." + t.Authority }

// ParseToken is the inverse of String.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 || len(parts[0]) != 6 || len(parts[1]) != 16 || len(parts[2]) != 43 {
		return Token{}, fmt.Errorf("--token: expected what isolane-hub token has printed, ID.SECRET.DIGEST with "+
			"6, 16 and 43 characters, found %d in all", len(text))
	}
	return Token{parts[0], parts[1], parts[2]}, nil
}

// Bearer returns the token as the API server expects it.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// NewToken makes a token by which one host joins a site. It creates the site if it does not exist.
func NewToken(ctx context.Context, core kubernetes.Interface, dyn dynamic.Interface, site, authority string) (
	Token, error) {
	if wrong := validation.IsDNS1123Label(site); len(wrong) > 0 {
		return Token{}, fmt.Errorf("site %q: %s", site, wrong[0])
	}
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": api.Group + "/" + api.Version,
		"kind": "Site", "metadata": map[string]any{"name": site}}}
	if err := apply(ctx, dyn, made); err != nil {
		return Token{}, err
	}
	t := Token{ID: word(6), Secret: word(16), Authority: authority}
	_, err := core.CoreV1().Secrets("kube-system").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretOf(t.ID)},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": t.ID, "token-secret": t.Secret,
			"expiration":                     time.Now().Add(TokenLifetime).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              api.Joining + "," + api.Joining + ":" + site},
	}, metav1.CreateOptions{})
	return t, err
}

func secretOf(id string) string { return "bootstrap-token-" + id }

// word returns a random word of n lower-case letters and digits.
func word(n int) string {
	return strings.ToLower(rand.Text()[:n]) // the first of 26, which have 130 random bits
}

// useUp marks a token as used up by a request, and reports whether that request has it: only one request can.
func useUp(ctx context.Context, core kubernetes.Interface, id, request string) (bool, error) {
	secrets := core.CoreV1().Secrets("kube-system")
	s, err := secrets.Get(ctx, secretOf(id), metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if by := s.Annotations[usedBy]; by != "" {
		return by == request, nil
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, usedBy, request)
	if _, err = secrets.Update(ctx, s, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
		return useUp(ctx, core, id, request) // another request was faster
	}
	return err == nil, err
}

// forget removes a used token.
func forget(ctx context.Context, core kubernetes.Interface, id string) error {
	return core.CoreV1().Secrets("kube-system").Delete(ctx, secretOf(id), metav1.DeleteOptions{})
}
