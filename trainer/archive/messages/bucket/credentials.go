package bucket

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// errNoCredentials is the failure of every request where there are no credentials.
var errNoCredentials = errors.New("there are no credentials: " +
	"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile in ~/.aws/credentials")

// roleTime bounds the question to the machine for its role's credentials.
const roleTime = 5 * time.Second

// providers asks several sources of credentials in order. It never falls back on requests without a signature.
type providers struct {
	all    []credentials.Provider
	chosen credentials.Provider
}

// newCredentials are the credentials of the environment, of the file of profiles, or of the machine's role.
func newCredentials() *credentials.Credentials {
	all := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		all = append(all, &credentials.IAM{Client: &http.Client{
			Timeout: roleTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}})
	}
	return credentials.New(&providers{all: all})
}

// RetrieveWithCredContext implements credentials.Provider.
func (p *providers) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	for _, source := range p.all {
		value, err := source.RetrieveWithCredContext(cc)
		if err == nil && value.AccessKeyID != "" && value.SecretAccessKey != "" {
			p.chosen = source
			return value, nil
		}
	}
	p.chosen = nil
	return credentials.Value{}, errNoCredentials
}

// Retrieve implements credentials.Provider.
func (p *providers) Retrieve() (credentials.Value, error) { return p.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (p *providers) IsExpired() bool { return p.chosen == nil || p.chosen.IsExpired() }
